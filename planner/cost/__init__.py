"""Costs of work and estimates over logical plans. Steps estimate themselves with them."""
