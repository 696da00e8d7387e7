"""Here live filters, smoothers and the account of which evidence moved a belief."""
