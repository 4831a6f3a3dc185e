provider "aws" {
  region = var.region

  default_tags {
    tags = {
      Project     = var.project
      Environment = "dev"
      ManagedBy   = "terraform"
    }
  }
}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

# Small, and gone without a trace: destroy takes the data with it.
module "platform" {
  source = "../../modules/platform"

  project     = var.project
  environment = "dev"
  account_id  = data.aws_caller_identity.this.account_id
  region      = var.region
  partition   = data.aws_partition.this.partition
  zones       = var.zones

  force_destroy = true
  # What jobs ask, and no more: an endpoint costs as much as a small stream in the day.
  endpoint_services = var.create_mwaa ? null : ["glue", "kms", "logs", "secretsmanager", "sts"]
  access_logs       = false
  log_days          = 30
  lake_days         = { noncurrent = 3, checkpoint = 14, logs = 14 }
  stream_capacity   = { cpu = 8, memory = 32 }
  backfill_capacity = { cpu = 16, memory = 64, disk = 400 }
  stream_workers    = { cores = 2, memory = "6g", most = 1 }
  backfill_workers  = { cores = 4, memory = "14g", most = 2 }

  existing_vpc         = var.existing_vpc
  create_endpoints     = var.create_endpoints
  existing_kms_key_arn = var.existing_kms_key_arn
  image_uri            = var.image_uri
  artifacts_prefix     = var.artifacts_prefix
  streams              = var.streams
  landing              = var.landing
  create_msk           = var.create_msk
  kafka_bootstrap      = var.kafka_bootstrap
  kafka_security       = var.kafka_security
  create_mwaa          = var.create_mwaa
  mwaa                 = var.mwaa
  secrets              = var.secrets
  analyst_principals   = var.analyst_principals
  alarm_emails         = var.alarm_emails
  monthly_budget       = var.monthly_budget
  job_environment      = var.job_environment
  job_conf             = var.job_conf
}
