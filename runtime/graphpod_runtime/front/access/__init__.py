"""How clients come to the API port: keys, TLS, origins of web pages, a prefix of paths."""
