"""What the strategies share that train one model in step."""
