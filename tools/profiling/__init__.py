"""Why is a candidate as fast as it is? Counters and whose kernels take the time."""
