"""OpGraph to Region: fusion of one region and the C++ text of every operator."""
