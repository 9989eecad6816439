"""Training data from run folders: read, cleaned of what is nobody's business, once each."""
