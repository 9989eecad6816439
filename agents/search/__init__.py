"""Known search methods as policies: functions of seed and history, so that a resumed run goes on as it would have."""
