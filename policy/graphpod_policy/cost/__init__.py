"""What graphs cost before they exist: seconds of capture and of the self-check, bytes of memory."""
