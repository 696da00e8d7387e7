"""Here live the errors a caller can act on; each reads as one line."""


class ClusterorchError(Exception):
    """Something the user gave or asked for cannot be used as it stands."""


class InvalidModel(ClusterorchError):
    """A model file says something that cannot be.

    Args:
        file: the file as the user knows it.
        key: where in the file, dotted: `mode.3.variant.1.sites`.
        problem: what is wrong there, with the value found.
        fix: what would be right.

    >>> print(InvalidModel("reference.toml", "slice_seconds", "-15 is not positive", "give seconds above 0"))
    reference.toml: slice_seconds: -15 is not positive; give seconds above 0
    """

    def __init__(self, file: str, key: str, problem: str, fix: str) -> None:
        # All four go to Exception, so that the error survives a trip between processes.
        super().__init__(file, key, problem, fix)
        self.file = file
        self.key = key
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.problem}; {self.fix}"


class InvalidLayout(ClusterorchError):
    """A layout is malformed, or too small or too large for what was asked."""


class IngestError(ClusterorchError):
    """A log cannot be opened or read at all; a line nobody recognises is no error."""


class ImpossibleEvidence(ClusterorchError):
    """Evidence has probability zero under every state still believed possible."""


class OutputExists(ClusterorchError):
    """A file to be written is there already, and nobody said to replace it."""


class UnknownModel(ClusterorchError):
    """No model of that name ships with the package, and no file has that path."""


class InvalidIntervention(ClusterorchError):
    """An intervention names a variable, value or time that the network does not have."""


class InvalidTrace(ClusterorchError):
    """What should be the trace of an episode is none that can be read, or cannot be played again.

    Args:
        file: the file or folder.
        found: what is there.
        expected: what should be.
        fix: the way out.

    >>> print(InvalidTrace("run/truth.parquet", "schema version 0", "version 1", "record it again"))
    run/truth.parquet: schema version 0 where version 1 is expected; record it again
    """

    def __init__(self, file: str, found: str, expected: str, fix: str) -> None:
        super().__init__(file, found, expected, fix)
        self.file, self.found, self.expected, self.fix = file, found, expected, fix

    def __str__(self) -> str:
        return f"{self.file}: {self.found} where {self.expected} is expected; {self.fix}"


class InvalidAgent(ClusterorchError):
    """A trained agent or a checkpoint is broken, of another version, or does not fit."""
