"""The demo on the reader's own cluster, `CLUSTER=current`: named and looked at first, and left as it was."""
