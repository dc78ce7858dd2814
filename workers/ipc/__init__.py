"""Messages between processes: the channel that carries them, and what each kind holds."""
