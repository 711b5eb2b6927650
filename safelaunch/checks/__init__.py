"""What would keep a job from starting: questions to machines, answers, advice."""
