"""`python -m warpsmith.app.slots`: trains slot policies on recorded tables and on live problems."""
