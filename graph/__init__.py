"""The LangGraph state machine that coordinates the roles."""
