mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  environment = "test"
  account_id  = "123456789012"
  region      = "eu-central-1"
  zones       = ["eu-central-1a", "eu-central-1b"]
  streams     = { flights = {} }
  create_mwaa = true
  mwaa        = { airflow_version = "3.1.8" }
}

run "jobs_are_told_what_they_need" {
  module {
    source = "./modules/platform"
  }
  variables {
    kafka_bootstrap = "b-1:9092,b-2:9092"
    job_environment = { TAILRACE_KEEP_SNAPSHOTS = "7d" }
    job_conf        = { "spark.executor.memory" = "20g" }
  }

  assert {
    condition     = output.job_environment.TAILRACE_WAREHOUSE == "s3://${output.buckets.lake}/warehouse" && output.job_environment.TAILRACE_CATALOG_URI == "glue://123456789012" && output.job_environment.TAILRACE_NAMESPACE == "tailrace_test" && output.job_environment.TAILRACE_CATALOG == "lake" && output.job_environment.TAILRACE_LOG_FORMAT == "json"
    error_message = "where the lake is, and that lines are JSON"
  }
  assert {
    condition     = output.job_environment.TAILRACE_KAFKA_BOOTSTRAP == "b-1:9092,b-2:9092" && output.job_environment.TAILRACE_KAFKA_SECURITY == "tls" && output.job_environment.TAILRACE_KEEP_SNAPSHOTS == "7d"
    error_message = "where the brokers are, and what else was said"
  }
  assert {
    condition     = output.runner.stream.conf["spark.archives"] == "${output.artifacts}/environment.tar.gz#environment,${output.artifacts}/definitions.tar.gz#definitions" && output.runner.stream.conf["spark.jars"] == "${output.artifacts}/jars/*.jar"
    error_message = "the code is out of the artifacts"
  }
  assert {
    condition     = output.runner.stream.conf["spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"] == "./environment/bin/python" && output.runner.backfill.conf["spark.executor.memory"] == "20g" && output.runner.stream.definitions == "definitions/pipelines" && output.runner.stream.environment.TAILRACE_CONTRACTS == "definitions/iceberg_schemas"
    error_message = "Python is the packed one; settings of one's own win"
  }
  assert {
    condition     = output.runner.stream.log_group == "/tailrace-test/stream" && output.runner.backfill.log_group == "/tailrace-test/backfill"
    error_message = "drivers print to where the filters look"
  }
  assert {
    condition     = length(module.orchestration.airflow_url) > 0 && length(output.alarms) == 6
    error_message = "Airflow and alarms are there"
  }
}

run "an_image_brings_all_that_jobs_need" {
  module {
    source = "./modules/platform"
  }
  variables {
    image_uri          = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/tailrace:1"
    packed_python      = false
    packed_definitions = false
    jars               = []
    definitions_folder = "/opt/tailrace/pipelines"
  }

  assert {
    condition     = length(setintersection(keys(output.runner.stream.conf), ["spark.archives", "spark.jars", "spark.executorEnv.PYSPARK_PYTHON"])) == 0 && output.runner.stream.definitions == "/opt/tailrace/pipelines"
    error_message = "nothing is taken out of the artifacts but the entry points"
  }
}

run "with_nothing_but_what_is_there_already" {
  module {
    source = "./modules/platform"
  }
  variables {
    create_mwaa          = false
    create_endpoints     = false
    existing_kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/99999999-2222-3333-4444-555555555555"
    existing_vpc         = { vpc_id = "vpc-0a1b2c3d", cidr = "10.99.0.0/16", subnet_ids = ["subnet-1", "subnet-2"] }
  }

  assert {
    condition     = output.kms_key_arn == var.existing_kms_key_arn && output.network.vpc_id == "vpc-0a1b2c3d" && output.airflow_url == null && output.roles.airflow == null && output.roles.analyst == null
    error_message = "what is there is used, and the rest is left out"
  }
}

run "endpoints_are_those_that_are_asked_for" {
  module {
    source = "./modules/platform"
  }
  variables {
    create_mwaa       = false
    endpoint_services = ["glue", "kms", "logs", "sts"]
  }

  assert {
    condition     = output.network.endpoints == tolist(["glue", "kms", "logs", "sts"])
    error_message = "each costs, so that only those are made"
  }
}

run "brokers_and_a_budget_when_asked_for" {
  module {
    source = "./modules/platform"
  }
  variables {
    create_msk     = true
    monthly_budget = 500
  }

  assert {
    condition     = endswith(output.job_environment.TAILRACE_KAFKA_BOOTSTRAP, ":9098") && output.job_environment.TAILRACE_KAFKA_SECURITY == "iam"
    error_message = "jobs are told where the brokers are"
  }
  assert {
    condition     = anytrue([for s in jsondecode(output.policies.stream) : s.Sid == "ReadTopics"])
    error_message = "and may read them"
  }
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/platform"
  }
  command = plan
  variables {
    project          = "My Project"
    environment      = "PROD"
    catalog          = "Lake"
    jars             = ["jars/a.jar"]
    stream_workers   = { cores = 3, memory = "14g", most = 1 }
    backfill_workers = { cores = 4, memory = "lots", most = 1 }
    job_environment  = { TAILRACE_NAMESPACE = "two words" }
    job_conf         = { "executor.memory" = "1g" }
    create_msk       = true
    kafka_bootstrap  = "broker:9092"
    kafka_security   = "none"
    mwaa             = { airflow_version = "3.0.6" }
    zones            = ["us-east-1a", "us-east-1b"]
  }
  expect_failures = [
    var.project, var.environment, var.catalog, var.jars, var.stream_workers, var.backfill_workers, var.job_environment,
    var.job_conf, var.kafka_bootstrap, var.kafka_security, var.mwaa, var.zones,
  ]
}

run "an_account_and_places_that_are_none_are_refused" {
  module {
    source = "./modules/platform"
  }
  command = plan
  variables {
    account_id         = "my-account"
    region             = "Frankfurt"
    partition          = "azure"
    namespace          = "my-lake"
    landing            = { "s3://landing-bucket" = "orders/" }
    packed_python      = false
    packed_definitions = false
    definitions_folder = "my pipelines"
  }
  expect_failures = [
    var.account_id, var.region, var.partition, var.namespace, var.landing, var.packed_python,
    var.packed_definitions, var.definitions_folder,
  ]
}
