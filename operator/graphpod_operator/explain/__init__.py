"""The same plan for people: `graphpod explain`, and the warnings of the admission webhook."""
