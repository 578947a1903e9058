"""What several rooms of tests share: builders, processes, brokers, patience."""
