mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  subnet_ids         = ["subnet-1", "subnet-2"]
  security_group_ids = ["sg-1"]
}

run "stream_and_backfills_have_capacities_of_their_own" {
  module {
    source = "./modules/streaming"
  }

  assert {
    condition     = aws_emrserverless_application.stream.name == "tailrace-test-stream" && aws_emrserverless_application.backfill.name == "tailrace-test-backfill"
    error_message = "two applications"
  }
  assert {
    condition     = aws_emrserverless_application.stream.maximum_capacity[0].cpu == "16 vCPU" && aws_emrserverless_application.backfill.maximum_capacity[0].cpu == "64 vCPU"
    error_message = "each has its own bound"
  }
  assert {
    condition     = !aws_emrserverless_application.stream.auto_stop_configuration[0].enabled && length(aws_emrserverless_application.stream.initial_capacity) == 0
    error_message = "the stream's application is not stopped, and keeps nothing that costs"
  }
  assert {
    condition     = aws_emrserverless_application.backfill.auto_stop_configuration[0].enabled && aws_emrserverless_application.backfill.auto_stop_configuration[0].idle_timeout_minutes == 15
    error_message = "the application of backfills stops"
  }
  assert {
    condition     = alltrue([for one in [aws_emrserverless_application.stream, aws_emrserverless_application.backfill] : one.release_label == "emr-spark-8.1.0" && one.auto_start_configuration[0].enabled && length(one.image_configuration) == 0 && one.network_configuration[0].subnet_ids == toset(["subnet-1", "subnet-2"])])
    error_message = "both run Spark 4.1 in the private subnets"
  }
  assert {
    condition     = length(aws_msk_serverless_cluster.this) == 0 && output.kafka_bootstrap == null && output.kafka_cluster_name == null
    error_message = "no brokers unless they are asked for"
  }
}

run "an_image_and_warm_workers_when_asked_for" {
  module {
    source = "./modules/streaming"
  }
  variables {
    image_uri             = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/tailrace:1"
    warm_backfill_workers = 3
    architecture          = "ARM64"
  }

  assert {
    condition     = alltrue([for one in [aws_emrserverless_application.stream, aws_emrserverless_application.backfill] : one.image_configuration[0].image_uri == var.image_uri && one.architecture == "ARM64"])
    error_message = "both have the image"
  }
  assert {
    condition     = toset([for one in aws_emrserverless_application.backfill.initial_capacity : "${one.initial_capacity_config[0].worker_count} ${one.initial_capacity_type}"]) == toset(["1 Driver", "3 Executor"])
    error_message = "backfills have a driver and executors ready"
  }
  assert {
    condition     = length(aws_emrserverless_application.stream.initial_capacity) == 0
    error_message = "the stream has none: it runs all the time"
  }
}

run "brokers_are_signed_in_to_with_iam" {
  module {
    source = "./modules/streaming"
  }
  variables {
    create_msk               = true
    kafka_security_group_ids = ["sg-2"]
  }

  assert {
    condition     = aws_msk_serverless_cluster.this[0].cluster_name == "tailrace-test-kafka" && aws_msk_serverless_cluster.this[0].client_authentication[0].sasl[0].iam[0].enabled
    error_message = "MSK Serverless with IAM"
  }
  assert {
    condition     = endswith(output.kafka_bootstrap, ":9098")
    error_message = "its brokers are told"
  }
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/streaming"
  }
  command = plan
  variables {
    release_label         = "latest"
    image_uri             = "tailrace:latest"
    architecture          = "arm"
    stream_capacity       = { cpu = 1, memory = 2 }
    backfill_capacity     = { cpu = 1, memory = 2 }
    backfill_idle_minutes = 0
    warm_backfill_workers = -1
    subnet_ids            = ["subnet-1"]
  }
  expect_failures = [
    var.release_label, var.image_uri, var.architecture, var.stream_capacity, var.backfill_capacity, var.backfill_idle_minutes,
    var.warm_backfill_workers, var.subnet_ids,
  ]
}
