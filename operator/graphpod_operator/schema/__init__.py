"""The API as the server has it: the CRD, its OpenAPI schema, and sentences about what does not fit. Pure."""
