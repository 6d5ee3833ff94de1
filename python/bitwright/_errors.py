"""The exceptions of bitwright: one for each kind of failure, as the program has an exit status for each."""


class Error(Exception):
    """One line that says what failed, on what, what was expected, what was found, and what to do about it."""

    #: The exit status that the program would have.
    code: int
    #: The part of the message that says what to do; empty if nothing is known to help.
    hint: str

    def __init__(self, message: str, code: int = 6, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class UsageError(Error, ValueError):
    """An option or argument makes no sense."""


class ModelError(Error):
    """The model directory, its data or a text file is bad."""


class NumericError(Error, ArithmeticError):
    """NaN, Inf, a matrix that cannot be factored."""


class InputOutputError(Error, OSError):
    """The file system, the disk, or memory."""

    def __init__(self, message: str, code: int = 5, hint: str = "") -> None:
        Error.__init__(self, message, code, hint)


class InternalError(Error):
    """A bug of Bitwright."""


class Interrupted(Error):
    """The run was ended; what was finished is kept."""


_CLASSES = {2: UsageError, 3: ModelError, 4: NumericError, 5: InputOutputError, 6: InternalError, 130: Interrupted}


def make(code: int, message: str, hint: str) -> Error:
    return _CLASSES.get(code, Error)(message, code, hint)
