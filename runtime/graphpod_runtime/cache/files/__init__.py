"""The file tier of the KV cache: pages in a folder, under the host pool."""
