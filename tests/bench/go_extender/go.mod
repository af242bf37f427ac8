module cohort-extender.io/bench/go-extender

go 1.26.0
