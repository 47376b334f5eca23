"""Values of reads: job queries, queue rates, the diagnosis of a waiting job."""
