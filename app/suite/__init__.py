"""`warpsmith bench`: many problems through the loop, resumable, with results in the forms that others read."""
