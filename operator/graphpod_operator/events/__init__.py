"""The core/v1 Events of services, and the recorder that writes them."""
