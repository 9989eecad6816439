"""Tasks of a training: recorded tables, problems judged live, and what rollouts collected."""
