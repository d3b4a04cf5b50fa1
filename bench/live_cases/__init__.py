"""The parts of `bench.live`: queries, feeding, whole jobs, latency, Nexmark, unions and peers."""
