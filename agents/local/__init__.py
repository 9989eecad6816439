"""Language models in this process: constrained decoding of replies, with the decisions kept for training."""
