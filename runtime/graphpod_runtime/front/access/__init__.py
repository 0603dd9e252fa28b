"""How clients come to the API port: TLS, origins of web pages, a prefix of paths."""
