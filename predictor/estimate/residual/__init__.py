"""What physics leaves over: log(measured / physical step time), learned from measurements."""
