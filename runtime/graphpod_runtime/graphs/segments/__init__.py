"""One captured stretch, by the recorder on a CPU or as a CUDA graph."""
