"""The engine process: start, runner, scheduler, loop."""
