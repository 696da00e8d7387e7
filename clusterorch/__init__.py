"""A causal, probabilistic model of how distributed training fails, and what can be done with it.

Importing the package imports none of its floors: take what you need, as in
`from clusterorch import models`.
"""

__version__ = "0.1.0"
