"""`graphpod advise`: a better ladder of the same memory, from the passes that a service has served."""
