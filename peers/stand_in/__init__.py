"""What vLLM's tests import of vLLM, as far as they need it to reach a server over HTTP. Laid outside the suite."""
