"""Reference modules that a model wrote: what they may say, and that a person has read them."""
