"""Tables outside the stream: the providers that hold them, the guard around each, and how an engine looks things up."""
