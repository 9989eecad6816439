"""Training of slot policies: GRPO and PPO on recorded tables and live problems, and the specialists that come of it."""
