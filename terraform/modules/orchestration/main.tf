# A file beside the DAGs, so that parsing them asks no service.
resource "aws_s3_object" "runner" {
  bucket       = var.artifacts_bucket
  key          = "${var.artifacts_prefix}/dags/runner.json"
  content      = jsonencode(var.runner)
  content_type = "application/json"
  kms_key_id   = var.kms_key_arn
}

resource "aws_mwaa_environment" "this" {
  count = var.create_mwaa ? 1 : 0

  name               = "${var.context.name}-airflow"
  airflow_version    = var.airflow_version
  environment_class  = var.environment_class
  min_workers        = 1
  max_workers        = var.max_workers
  execution_role_arn = var.execution_role_arn
  kms_key            = var.kms_key_arn

  source_bucket_arn              = "arn:${var.context.partition}:s3:::${var.artifacts_bucket}"
  dag_s3_path                    = "${var.artifacts_prefix}/dags"
  plugins_s3_path                = "${var.artifacts_prefix}/plugins.zip"
  plugins_s3_object_version      = var.plugins_version
  requirements_s3_path           = "${var.artifacts_prefix}/requirements-mwaa.txt"
  requirements_s3_object_version = var.requirements_version

  webserver_access_mode = var.public_webserver ? "PUBLIC_ONLY" : "PRIVATE_ONLY"

  airflow_configuration_options = merge(
    {
      "core.load_examples"     = "False"
      "secrets.backend"        = "airflow.providers.amazon.aws.secrets.secrets_manager.SecretsManagerBackend"
      "secrets.backend_kwargs" = jsonencode({ connections_prefix = "${var.secrets_prefix}/connections", variables_prefix = "${var.secrets_prefix}/variables" })
    },
    var.airflow_options,
  )

  network_configuration {
    subnet_ids         = slice(var.subnet_ids, 0, 2)
    security_group_ids = [var.security_group_id]
  }

  logging_configuration {
    dag_processing_logs {
      enabled   = true
      log_level = "WARNING"
    }
    scheduler_logs {
      enabled   = true
      log_level = "WARNING"
    }
    task_logs {
      enabled   = true
      log_level = "INFO"
    }
    webserver_logs {
      enabled   = true
      log_level = "WARNING"
    }
    worker_logs {
      enabled   = true
      log_level = "WARNING"
    }
  }

  lifecycle {
    precondition {
      condition     = var.execution_role_arn != null && var.security_group_id != null
      error_message = "MWAA needs an execution role and a security group: set execution_role_arn and security_group_id."
    }
  }

  # MWAA looks for the folder of DAGs when it is made.
  depends_on = [aws_s3_object.runner]
}
