"""What every test may rely on, however the run itself was started."""
import signal

# A shell starts what it puts into the background with Ctrl-C ignored, and every process started from there inherits
# that: a test that interrupts a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
