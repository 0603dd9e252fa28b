"""What a start costs in bytes and seconds, and whether it can succeed, before any ran."""
