"""GET /openapi.json: the API port as an OpenAPI 3.1 document, made from the types that requests and answers have."""
