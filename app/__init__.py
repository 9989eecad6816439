"""How people use Warpsmith: command line, progress, doctor."""
