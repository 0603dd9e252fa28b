"""The truth matrix: does every graph policy give eager's tokens, in every situation, for every model family?

`make truth` runs it on the CPU, `make truth DEVICE=cuda` on a GPU; `docs/reference/truth.md` is its table.
"""
