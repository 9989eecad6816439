"""How fast is a candidate? Setting the stage, sampling, statistics, baselines."""
