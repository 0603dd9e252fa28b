"""CUDA graphs, and the recorder that stands for them on a CPU: breakable, piecewise and full."""
