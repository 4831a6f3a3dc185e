mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  kms_key_arn        = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
  execution_role_arn = "arn:aws:iam::123456789012:role/tailrace-test-airflow"
  artifacts_bucket   = "artifacts"
  artifacts_prefix   = "tailrace"
  subnet_ids         = ["subnet-1", "subnet-2", "subnet-3"]
  security_group_id  = "sg-1"
  secrets_prefix     = "tailrace-test"
  airflow_version    = "3.1.8"
  runner             = { stream = { id = "a1" }, backfill = { id = "b2" } }
}

run "airflow_has_the_dags_plugins_and_requirements" {
  module {
    source = "./modules/orchestration"
  }

  assert {
    condition     = aws_mwaa_environment.this[0].dag_s3_path == "tailrace/dags" && aws_mwaa_environment.this[0].plugins_s3_path == "tailrace/plugins.zip" && aws_mwaa_environment.this[0].requirements_s3_path == "tailrace/requirements-mwaa.txt"
    error_message = "they are where the artifacts are"
  }
  assert {
    condition     = aws_mwaa_environment.this[0].name == "tailrace-test-airflow" && aws_mwaa_environment.this[0].airflow_version == "3.1.8"
    error_message = "Airflow 3, named as all else"
  }
  assert {
    condition     = aws_mwaa_environment.this[0].webserver_access_mode == "PRIVATE_ONLY" && aws_mwaa_environment.this[0].kms_key == var.kms_key_arn
    error_message = "its pages are the VPC's own, and it is encrypted"
  }
  assert {
    condition     = length(aws_mwaa_environment.this[0].network_configuration[0].subnet_ids) == 2
    error_message = "MWAA takes two subnets"
  }
  assert {
    condition     = jsondecode(aws_mwaa_environment.this[0].airflow_configuration_options["secrets.backend_kwargs"]).connections_prefix == "tailrace-test/connections"
    error_message = "connections are secrets of this name"
  }
  assert {
    condition     = alltrue([for one in ["dag_processing_logs", "scheduler_logs", "task_logs", "webserver_logs", "worker_logs"] : aws_mwaa_environment.this[0].logging_configuration[0][one][0].enabled])
    error_message = "it logs"
  }
}

run "the_dags_find_the_runner_beside_them" {
  module {
    source = "./modules/orchestration"
  }

  assert {
    condition     = aws_s3_object.runner.key == "tailrace/dags/runner.json" && jsondecode(aws_s3_object.runner.content).stream.id == "a1"
    error_message = "runner.json says which application"
  }
}

run "without_mwaa_there_is_the_runner_alone" {
  module {
    source = "./modules/orchestration"
  }
  variables {
    create_mwaa        = false
    execution_role_arn = null
    security_group_id  = null
  }

  assert {
    condition     = length(aws_mwaa_environment.this) == 0 && output.airflow_url == null && output.airflow_name == null && output.runner_key == "tailrace/dags/runner.json"
    error_message = "an Airflow elsewhere reads the runner too"
  }
}

run "mwaa_without_a_role_is_refused" {
  module {
    source = "./modules/orchestration"
  }
  command = plan
  variables {
    execution_role_arn = null
  }
  expect_failures = [aws_mwaa_environment.this]
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/orchestration"
  }
  command = plan
  variables {
    create_mwaa       = false
    airflow_version   = "2.10.3"
    environment_class = "large"
    max_workers       = 0
    subnet_ids        = ["subnet-1"]
  }
  expect_failures = [var.airflow_version, var.environment_class, var.max_workers, var.subnet_ids]
}

run "an_airflow_without_a_version_is_refused" {
  module {
    source = "./modules/orchestration"
  }
  command = plan
  variables {
    airflow_version = null
  }
  expect_failures = [var.airflow_version]
}

run "an_airflow_that_tailrace_does_not_run_on_is_refused" {
  module {
    source = "./modules/orchestration"
  }
  command = plan
  variables {
    airflow_version = "3.0.6"
  }
  expect_failures = [var.airflow_version]
}
