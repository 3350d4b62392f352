"""What is written for RETURNN and read from it: configs, the learning-rate file. Standard library only."""
