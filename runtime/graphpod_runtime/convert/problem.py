"""The one error of the converter: its text says what is wrong, in which file, and what to do."""


class ConvertError(Exception):
    """The GGUF file cannot be converted, or the target cannot be written. Nothing was left behind."""
