"""The sizes that graphs are captured for, and the advice that a pod's own batches give about them."""
