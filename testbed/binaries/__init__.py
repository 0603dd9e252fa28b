"""What a testbed runs that is no image: Kubernetes and its tools built by Go, and packages of Debian."""
