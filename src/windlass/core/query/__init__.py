"""Values of reads: job queries, queue rates, drain progress."""
