"""The control plane: its command lines, certificates, first questions and audit log."""
